#[derive(Default)]
pub(super) struct Workspaces {}
