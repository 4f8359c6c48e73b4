"""What is filed of a release: its report, its warnings, its entry in a registry, its answers to NIST."""
