"""From images to embeddings: the only room that imports a deep-learning runtime."""
