//! Consumer groups: members, positions, and what each group has done.

pub(crate) mod connection;
pub(crate) mod cursor;
pub(crate) mod group;
pub(crate) mod group_admin;
pub(crate) mod group_inspection;
pub(crate) mod members;
pub(crate) mod seek;
pub(crate) mod sticky;
pub(crate) mod subscribe;
pub(crate) mod table;
