//! What can be wrong with a router configuration.

/// Why a router configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A router configuration that is not JSON of the right form.
    #[error(
        "the router configuration cannot be read: {0}; it is a JSON object with `score` and `top_k`, and no key that is not among those \
         documented"
    )]
    Json(String),

    /// A router configuration that no gate computes.
    #[error("router configuration: {what} is {given}; {allowed}")]
    Value {
        /// Which part of it.
        what: &'static str,
        /// What was asked for.
        given: String,
        /// What is allowed.
        allowed: String,
    },
}
