//! Dead letters go to the queues that get them, and messages of delayed exchanges with them: what is passed on.
