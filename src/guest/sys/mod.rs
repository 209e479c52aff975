//! What differs by operating system, behind the same function names for each.

mod unix;
