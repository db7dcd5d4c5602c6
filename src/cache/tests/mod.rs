//! The policies and the cache against naive forms.

mod directory;
mod gather;
mod naive;
mod shards;
mod traces;

use super::*;
