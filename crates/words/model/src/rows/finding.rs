//! Findings of an examination of a store: where, what is wrong, and what to do about it.

/// Findings kept in full. More are only counted: a store with this many problems needs a backup, not a longer list.
pub const FINDINGS_MAX: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Something is lost or wrong, or prevents the server from working.
    Problem,
    /// Worth knowing; the store is healthy with it.
    Note,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub weight: Weight,
    /// A file, a table and its row, or a stream and its offsets.
    pub place: String,
    pub what: String,
    pub advice: String,
}

/// A bounded list of findings, in the order they were made.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    list: Vec<Finding>,
    problems: u64,
    left_out: u64,
}

impl Findings {
    pub fn problem(&mut self, place: impl Into<String>, what: impl Into<String>, advice: impl Into<String>) {
        let (place, what, advice) = (place.into(), what.into(), advice.into());
        self.push(Finding { weight: Weight::Problem, place, what, advice });
    }

    pub fn note(&mut self, place: impl Into<String>, what: impl Into<String>, advice: impl Into<String>) {
        let (place, what, advice) = (place.into(), what.into(), advice.into());
        self.push(Finding { weight: Weight::Note, place, what, advice });
    }

    pub fn append(&mut self, other: Findings) {
        self.left_out += other.left_out;
        // Adds the problems that `other` only counted; those in its list are counted by `push`.
        let listed = other.list.iter().filter(|one| one.weight == Weight::Problem).count() as u64;
        self.problems += other.problems - listed;
        for finding in other.list {
            self.push(finding);
        }
    }

    fn push(&mut self, finding: Finding) {
        self.problems += u64::from(finding.weight == Weight::Problem);
        if self.list.len() < FINDINGS_MAX {
            self.list.push(finding);
        } else {
            self.left_out += 1;
        }
    }

    pub fn list(&self) -> &[Finding] {
        &self.list
    }

    /// Findings that are counted but not listed.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns the number of problems, listed or not.
    pub fn problems(&self) -> u64 {
        self.problems
    }

    pub fn is_healthy(&self) -> bool {
        self.problems == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_bound_is_counted_and_not_kept() {
        let mut all = Findings::default();
        all.note("here", "fine", "nothing");
        let mut many = Findings::default();
        for n in 0..FINDINGS_MAX + 5 {
            many.problem(format!("row {n}"), "bad", "restore");
        }
        all.append(many);
        assert_eq!((all.list().len(), all.left_out()), (FINDINGS_MAX, 6));
        assert_eq!(all.problems(), FINDINGS_MAX as u64 + 5);
        assert!(!all.is_healthy());
    }
}
