//! `POST /topics/{topic}/groups/{group}/seek`.

use millrace_model::{Group, Partition, TopicName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::FrameError;
use crate::field::Field;
use crate::fields::{FrameFields, needed};
use crate::position::Position;
use crate::schema;
use crate::start::StartFrom;

/// Moves a group; `partition: None` moves all partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seek {
    pub from: StartFrom,
    pub partition: Option<Partition>,
    /// Only say where the group would be.
    pub dry_run: bool,
}

impl Seek {
    pub fn parse(text: &str) -> Result<Seek, FrameError> {
        let fields = FrameFields::of_document(text)?;
        let (from, _) = needed(Field::From, StartFrom::read(&fields)?)?;
        let partition = fields.small(Field::Partition, 0..=u32::MAX)?.map(Partition);
        Ok(Seek { from, partition, dry_run: fields.flag(Field::DryRun)? })
    }
}

/// The positions of the group after the seek.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sought {
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    #[schemars(schema_with = "schema::group")]
    pub group: Group,
    pub partitions: Vec<Position>,
    /// Nothing was moved: these are the positions that the group would have.
    #[serde(default, rename = "dryRun", skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}
