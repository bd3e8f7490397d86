"""Classification of texts with a BERT-style encoder: word vocabulary, padded batches, mixed precision."""
