//! Searches the states: all of them, depth first, or along random walks.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::check;
use crate::steps::{Next, steps};
use crate::world::World;

/// The size of a search.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    /// States in which both workers have ended.
    pub(crate) ends: usize,
    /// Steps of the longest path without a state that was known already.
    pub(crate) depth: usize,
}

type Path = Vec<(usize, &'static str)>;

/// Visits every state that `start` leads to.
pub(crate) fn explore(start: World) -> Result<Found, String> {
    let mut found = Found::default();
    let mut seen = HashSet::from([fingerprint(&start)]);
    let mut path = Path::new();
    let mut open: Vec<(usize, (usize, &'static str), World)> = vec![(0, (0, "begins"), start)];
    let mut next = Vec::new();
    while let Some((depth, step, world)) = open.pop() {
        path.truncate(depth);
        path.push(step);
        found.states += 1;
        found.depth = found.depth.max(path.len());
        found.ends += usize::from(check::is_over(&world));
        steps(&world, &mut next);
        check(&world, &next).map_err(|violation| describe(violation, &path, &world))?;
        found.steps += next.len();
        for Next { name, thread, world, .. } in next.drain(..) {
            if seen.insert(fingerprint(&world)) {
                open.push((depth + 1, (thread, name), world));
            }
        }
    }
    Ok(found)
}

/// Takes random steps until there are none; returns how many.
pub(crate) fn walk(start: World, seed: u64) -> Result<usize, String> {
    let mut dice = SmallRng::seed_from_u64(seed);
    let mut world = start;
    let mut path = Path::new();
    let mut next = Vec::new();
    loop {
        steps(&world, &mut next);
        check(&world, &next).map_err(|violation| describe(violation, &path, &world))?;
        if next.is_empty() {
            return Ok(path.len());
        }
        let Next { name, thread, world: chosen, .. } = next.swap_remove(dice.random_range(0..next.len()));
        path.push((thread, name));
        world = chosen;
    }
}

fn check(world: &World, next: &[Next]) -> Result<(), &'static str> {
    check::always(world)?;
    if next.iter().any(|next| next.is_certain) { Ok(()) } else { check::at_rest(world) }
}

fn describe(violation: &str, path: &Path, world: &World) -> String {
    let steps: Vec<String> = path.iter().map(|(thread, step)| format!("{thread} {step}")).collect();
    let last = steps.len().saturating_sub(40);
    format!("{violation}\nafter {}\n{world:#?}", steps[last..].join(", "))
}

/// 64 bits: that two of a million states have the same is out of the question.
fn fingerprint(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.sorted().hash(&mut hasher);
    hasher.finish()
}
