"""The network that classifies a text."""

from torch import Tensor, nn
from transformers import BertConfig, BertModel

DROPOUT = 0.1


class EncoderClassifier(nn.Module):
    """A BERT encoder with random weights, and a linear layer on its output for the first token.

    Args:
        vocabulary: How many words it knows.
        classes: How many classes it distinguishes.
        hidden_size: Dimension of a token between layers, a multiple of `heads`.
        layers: Layers of the encoder.
        heads: Attention heads of a layer.
        max_length: Most tokens of a text.
    """

    def __init__(
        self, *, vocabulary: int, classes: int, hidden_size: int, layers: int, heads: int, max_length: int
    ) -> None:
        super().__init__()
        configuration = BertConfig(
            vocab_size=vocabulary,
            hidden_size=hidden_size,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=4 * hidden_size,
            max_position_embeddings=max_length,
            hidden_dropout_prob=DROPOUT,
            attention_probs_dropout_prob=DROPOUT,
        )
        self.encoder = BertModel(configuration, add_pooling_layer=False)
        self.dropout = nn.Dropout(DROPOUT)
        self.classifier = nn.Linear(hidden_size, classes)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return logits (N, classes) of tokens (N, length) where the mask (N, length) is true."""
        # The encoder would check whether a mask of two dimensions is all true, which makes the host wait for
        # the device; a mask for every head and query is used without a check.
        every_head_and_query = mask[:, None, None, :]
        hidden = self.encoder(input_ids=tokens, attention_mask=every_head_and_query).last_hidden_state
        logits: Tensor = self.classifier(self.dropout(hidden[:, 0]))
        return logits
