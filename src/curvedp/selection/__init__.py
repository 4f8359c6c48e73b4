"""Choosing a model: for free from one release, or privately among several."""

from curvedp.selection.search import Candidate, PrivateSearch

__all__ = ["Candidate", "PrivateSearch"]
