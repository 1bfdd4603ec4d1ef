"""Cities exchange what they have learned: sealed summaries, sent from peer to peer over HTTP."""
