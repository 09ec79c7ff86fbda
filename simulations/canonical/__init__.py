"""How far K and V of the canonical class are the same, however and wherever they are computed."""
