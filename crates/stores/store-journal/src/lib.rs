//! A store that several servers share.

pub mod record;
