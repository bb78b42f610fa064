//! Frames about the connection as a whole: FLOW and AUTH.

use std::fmt;

use crate::error::FrameError;
use crate::field::Field;
use crate::fields::{FrameFields, INTEGER_MAX, needed};
use crate::text::{push_member, push_string_member};

/// Adds delivery credits to the connection; the first FLOW switches it to credit mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    pub credits: u64,
}

impl Flow {
    pub(super) fn read(fields: &FrameFields<'_>) -> Result<Flow, FrameError> {
        Ok(Flow { credits: needed(Field::Credits, fields.integer(Field::Credits, 0..=INTEGER_MAX)?)? })
    }

    pub(super) fn push(self, out: &mut String) {
        push_member(out, "credits", self.credits);
    }
}

/// A secret: never shown, not even in a debug print.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthToken(String);

impl AuthToken {
    pub fn new(secret: String) -> AuthToken {
        AuthToken(secret)
    }

    pub fn secret(&self) -> &str {
        &self.0
    }

    pub(super) fn read(fields: &FrameFields<'_>) -> Result<AuthToken, FrameError> {
        Ok(AuthToken(needed(Field::Token, fields.text(Field::Token)?)?.into()))
    }

    pub(super) fn push(&self, out: &mut String) {
        push_string_member(out, "token", &self.0);
    }
}

impl fmt::Debug for AuthToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthToken(...)")
    }
}
