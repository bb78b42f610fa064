//! Topics and groups: names, settings, access lists.

pub(crate) mod access;
pub(crate) mod group_access;
pub(crate) mod name;
pub(crate) mod requester;
pub(crate) mod system;
pub(crate) mod topic_access;
pub(crate) mod topic_config;
