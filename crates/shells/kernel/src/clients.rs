//! Clients of the loop: connections, identity and rights, those on other threads.

pub(crate) mod audit_hook;
pub(crate) mod conns;
pub(crate) mod credentials;
pub(crate) mod remote;
pub(crate) mod sender_check;
