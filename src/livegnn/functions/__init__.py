"""Workers that start when requests arrive, on one machine or in a cloud: predictions without idle servers."""
