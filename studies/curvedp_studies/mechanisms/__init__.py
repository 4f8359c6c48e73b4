"""Published mechanisms to compare with, accounted as tightly as is known."""
