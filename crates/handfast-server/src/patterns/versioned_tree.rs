//! Versioned trees of a collection.

use std::sync::Arc;

use bson::Bson;
use handfast_patterns::{VersionedTree, VersionedTreeOptions};
use handfast_store::{DocumentStore, Namespace};

use super::{Kept, OpenPatterns, Pattern, ReadPattern, check_usable, store_of};
use crate::error::CommandResult;
use crate::state::Shared;

/// The root of a kept pattern. Each command has the root of its own tree.
const ROOT: &str = "";

impl Pattern for VersionedTree {
    async fn open(shared: &Shared, namespace: Namespace) -> CommandResult<Self> {
        let options = options(shared, &namespace).await?;
        Ok(VersionedTree::open_with(store_of(shared), namespace, shared.sources.clone(), options).await?)
    }

    fn on(&self, store: Arc<dyn DocumentStore>) -> Self {
        self.on_store(store)
    }

    fn kept(patterns: &OpenPatterns) -> &Kept<Self> {
        &patterns.trees
    }
}

impl ReadPattern for VersionedTree {
    async fn attach(shared: &Shared, namespace: Namespace) -> CommandResult<Self> {
        let options = options(shared, &namespace).await?;
        Ok(VersionedTree::attach(store_of(shared), namespace, shared.sources.clone(), options).await?)
    }
}

/// Returns the tree with this root.
///
/// # Errors
/// `BadValue` (2) for a value that cannot be the item id of a root.
pub(crate) fn with_root(tree: &VersionedTree, root: Bson) -> CommandResult<VersionedTree> {
    VersionedTreeOptions::new(root.clone()).check()?;
    Ok(tree.of(root))
}

/// Returns the recorded options of the trees of a collection, or the defaults.
async fn options(shared: &Shared, nodes: &Namespace) -> CommandResult<VersionedTreeOptions> {
    let recorded = VersionedTreeOptions::recorded(store_of(shared), nodes, ROOT).await?;
    let options = recorded.unwrap_or_else(|| VersionedTreeOptions::new(ROOT));
    for named in [&options.writes, &options.pins].into_iter().flatten() {
        check_usable(nodes, named)?;
    }
    Ok(options)
}
