"""Private convex learning by random curvature."""

__version__ = "0.1.0"
