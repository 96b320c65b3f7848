//! What comes from outside and does not belong here.
