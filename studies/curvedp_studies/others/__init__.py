"""Others' published tables in their own settings, and the library's fits there: `curvedp others`."""
