"""From text to ids: loading, training and running tokenizers. No torch."""
