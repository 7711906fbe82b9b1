"""What Convoy decided and why, as data (``decision``) and as text (``text``)."""
