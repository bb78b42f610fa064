//! A position in one partition, of a group or a stream: `{"partition":0,"next":1}`.

use millrace_model::{Offset, Partition};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;
use crate::text::push_display;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Position {
    #[schemars(schema_with = "schema::partition")]
    pub partition: Partition,
    #[schemars(schema_with = "schema::offset")]
    pub next: Offset,
}

impl Position {
    pub(crate) fn push_all(positions: impl IntoIterator<Item = Position>, out: &mut String) {
        out.push('[');
        for (at, position) in positions.into_iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            push_display(
                out,
                format_args!("{comma}{{\"partition\":{},\"next\":{}}}", position.partition, position.next),
            );
        }
        out.push(']');
    }
}
