"""Tables of embeddings, the files and frames they come from, and the few-shot problems drawn from them."""
