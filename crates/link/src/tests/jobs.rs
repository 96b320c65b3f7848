//! Messages cross, whatever happens to connections and nodes.
