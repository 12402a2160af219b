"""Translation with trained models, and their export."""
