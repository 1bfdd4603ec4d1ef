"""Cities tell one another what they have learned: sealed summaries, exchanged peer to peer over HTTP."""
