//! The numbers of the small tables in records. A number is never given to another table.

use millrace_model::Space;

use super::cursor::Malformed;

pub(super) fn number_of(space: Space) -> u8 {
    match space {
        Space::Topics => 1,
        Space::Groups => 2,
        Space::Cursors => 3,
        Space::Attempts => 4,
        Space::Due => 5,
        Space::DueIds => 6,
        Space::Kv => 7,
        Space::OffPriority => 8,
        Space::Handlers => 9,
        Space::Lanes => 10,
        Space::Claims => 11,
        Space::Finished => 12,
        Space::DeadLetters => 13,
        Space::Sessions => 14,
        Space::Schedules => 15,
        Space::Heads => 16,
        Space::History => 17,
        Space::StateCommits => 18,
        Space::Schemas => 19,
    }
}

pub(super) fn space_of(number: u8) -> Result<Space, Malformed> {
    let found = Space::ALL.into_iter().find(|space| number_of(*space) == number);
    found.ok_or(Malformed("the number of a table in its body"))
}
