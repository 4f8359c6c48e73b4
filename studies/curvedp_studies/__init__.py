"""Studies of curvedp: the paper's figures and tables, and a comparison with other private methods.

Nothing here is private: fits are seeded and scores are computed on the records themselves.
"""
