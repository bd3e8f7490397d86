"""Deep metric learning on small images: P-K batches, triplet and contrastive losses, cluster metrics."""
