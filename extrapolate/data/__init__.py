"""From documents to token windows."""
