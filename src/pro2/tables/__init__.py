"""Tables of embeddings, data sets, and the target distributions drawn from them."""
