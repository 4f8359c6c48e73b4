"""What people ask of a table: estimators, explorations, scores, searches."""
