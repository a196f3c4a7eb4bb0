//! The names of commands: those that servers know, and what a rule with another name probably means.
//!
//! Servers have commands of their own, and new ones with each version. So a name that is unknown and near to no known one is taken, with a
//! warning; a name that is nearly a known one is a mistake.

/// Commands about a collection by their names on the wire, where their letters are significant.
const COLLECTION_COMMANDS: [&str; 18] = [
    "aggregate",
    "collMod",
    "collStats",
    "count",
    "create",
    "createIndexes",
    "delete",
    "distinct",
    "drop",
    "dropIndexes",
    "find",
    "findAndModify",
    "getMore",
    "insert",
    "listIndexes",
    "mapReduce",
    "update",
    "validate",
];
/// Commands that name no collection.
const OTHER_COMMANDS: [&str; 25] = [
    "abortTransaction",
    "buildInfo",
    "bulkWrite",
    "commitTransaction",
    "configureFailPoint",
    "connectionStatus",
    "createUser",
    "currentOp",
    "dbHash",
    "dbStats",
    "dropDatabase",
    "dropUser",
    "explain",
    "getParameter",
    "hostInfo",
    "killOp",
    "listCollections",
    "listCommands",
    "listDatabases",
    "ping",
    "renameCollection",
    "replSetGetStatus",
    "serverStatus",
    "setParameter",
    "usersInfo",
];
/// Commands of administration, of which some name a collection.
///
/// Source: "Database Commands" of the MongoDB manual, versions 3.6 to 8.0, and the commands that other servers add (`customAction` of Azure Cosmos
/// DB, `modifyChangeStreams` of Amazon DocumentDB, `handfastBackup` and its like of Handfast).
const FURTHER_COMMANDS: &str = "
    _mergeAuthzCollections abortMoveCollection abortReshardCollection abortUnshardCollection addShard addShardToZone analyzeShardKey appendOplogNote applyOps
    autoCompact availableQueryOptions balancerCollectionStatus balancerStart balancerStatus balancerStop captrunc checkMetadataConsistency
    checkShardingIndex cleanupOrphaned cleanupReshardCollection cleanupStructuredEncryptionData clearJumboFlag clone cloneCollection
    cloneCollectionAsCapped commitReshardCollection commitTransitionToDedicatedConfigServer compact compactStructuredEncryptionData
    configureCollectionBalancing configureQueryAnalyzer connPoolStats connPoolSync convertToCapped coordinateCommitTransaction copydb
    createRole createSearchIndexes cursorInfo customAction dataSize dbCheck driverOIDTest dropAllRolesFromDatabase
    dropAllUsersFromDatabase dropConnections dropRole dropSearchIndex echo emptycapped enableSharding eval features filemd5
    flushRouterConfig forceerror fsync fsyncUnlock geoNear geoSearch getAuditConfig getChangeStreamState getClusterParameter
    getCmdLineOpts getDatabaseVersion getDefaultRWConcern getDiagnosticData getFreeMonitoringStatus getLastError getLog getnonce
    getPrevError getQueryableEncryptionCountInfo getShardMap getShardVersion getTransitionToDedicatedConfigServerStatus godinsert
    grantPrivilegesToRole grantRolesToRole grantRolesToUser group
    handfastAdvanceTwoPhase handfastApplyOnce handfastAuditSynced handfastBackup handfastBalance handfastBeginTwoPhase
    handfastCancelEntry handfastCancelJob handfastCancelTwoPhase handfastCaptureHold handfastClaimJobs
    handfastCompensateTwoPhase handfastCompleteJob handfastDeleteSynced handfastEnqueueJob handfastFailJob
    handfastFinishUpdates handfastInsertSynced handfastOpenAccount handfastOpenSyncFlag handfastOpenTwoPhase
    handfastPauseQueue handfastPostEntry handfastPostHold handfastQueueDepth handfastReadTree handfastReconcileLedger
    handfastRecoverTwoPhase handfastReleaseHold handfastReleaseJob handfastRenewJob handfastResumeQueue handfastRetryJob
    handfastSetSynced handfastStatement handfastSweepSynced handfastSweepTree handfastWriteTree httpClientRequest invalidateUserCache isdbgrid
    killAllSessions killAllSessionsByPattern listShards lockInfo logRotate medianKey mergeAllChunksOnShard mergeChunks modifyChangeStreams
    moveChunk moveCollection movePrimary moveRange netstat oidReset parallelCollectionScan planCacheClear planCacheClearFilters
    planCacheListFilters planCacheListPlans planCacheListQueryShapes planCacheSetFilter prepareTransaction profile
    refineCollectionShardKey refreshLogicalSessionCacheNow refreshSessions reIndex removeQuerySettings removeShard removeShardFromZone
    repairDatabase replSetAbortPrimaryCatchUp replSetFreeze replSetGetConfig replSetGetRBID replSetHeartbeat replSetInitiate
    replSetMaintenance replSetReconfig replSetRequestVotes replSetResizeOplog replSetStepDown replSetStepUp replSetSyncFrom replSetTest
    replSetUpdatePosition resetError reshardCollection revokePrivilegesFromRole revokeRolesFromRole revokeRolesFromUser rolesInfo
    rotateCertificates rotateFTDC setAllowMigrations setAuditConfig setChangeStreamState setClusterParameter setCommittedSnapshot
    setDefaultRWConcern setFeatureCompatibilityVersion setFreeMonitoring setIndexCommitQuorum setProfilingFilterGlobally setQuerySettings
    setShardVersion setUserWriteBlockMode shardCollection shardConnPoolStats shardingState shutdown sleep split splitChunk splitVector
    startRecordingTraffic startSession startShardDraining startTransitionToDedicatedConfigServer stopRecordingTraffic stopShardDraining
    stopTransitionToDedicatedConfigServer top touch transitionFromDedicatedConfigServer transitionToDedicatedConfigServer
    transitionToShardedCluster unsetSharding unshardCollection untrackUnshardedCollection updateRole updateSearchIndex updateUser
    updateZoneKeyRange validateDBMetadata voteAbortIndexBuild voteAbortMigration voteCommitIndexBuild waitForFailPoint
    waitForOngoingChunkSplits whatsmysni whatsmyuri
";
/// Second names that servers take, too.
const ALIASES: [&str; 6] = ["buildinfo", "collstats", "dbstats", "deleteIndexes", "findandmodify", "mapreduce"];
/// Methods of drivers in small letters without underscores, and the command that each sends.
const METHODS: [(&str, &str); 22] = [
    ("insertone", "insert"),
    ("insertmany", "insert"),
    ("updateone", "update"),
    ("updatemany", "update"),
    ("replaceone", "update"),
    ("save", "update"),
    ("upsert", "update"),
    ("deleteone", "delete"),
    ("deletemany", "delete"),
    ("remove", "delete"),
    ("findone", "find"),
    ("findoneandupdate", "findAndModify"),
    ("findoneandreplace", "findAndModify"),
    ("findoneanddelete", "findAndModify"),
    ("countdocuments", "aggregate"),
    ("estimateddocumentcount", "count"),
    ("watch", "aggregate"),
    ("createindex", "createIndexes"),
    ("dropindex", "dropIndexes"),
    ("createcollection", "create"),
    ("dropcollection", "drop"),
    ("listcollectionnames", "listCollections"),
];
/// The characters that a misspelt name has too much, too few, exchanged or wrong: more of them make another word.
const MISSPELT_CHARACTERS_MAX: usize = 2;
/// The length from which on a name may have so many; a shorter one may have one.
const LONG_NAME_CHARACTERS_MIN: usize = 5;

/// A command that no known server has, with a sentence about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UnknownCommand {
    /// No operation has it: the rule never applies.
    Mistake(String),
    /// A server may have it as one of its own.
    Possible(String),
}

/// Returns why no operation of this command has a collection.
pub(super) fn no_collection(command: &str) -> Option<String> {
    let reason = || format!("the command '{command}' is not about a collection: remove 'collection'");
    OTHER_COMMANDS.contains(&command).then(reason)
}

/// Returns the names of all known commands, without second ones.
fn known() -> impl Iterator<Item = &'static str> {
    COLLECTION_COMMANDS.into_iter().chain(OTHER_COMMANDS).chain(FURTHER_COMMANDS.split_whitespace())
}

/// Returns a sentence about a command that is unknown. A name that begins with `_` is of a command by which servers speak to each other.
pub(super) fn unknown_command(command: &str) -> Option<UnknownCommand> {
    if known().chain(ALIASES).any(|known| known == command) {
        return None;
    }
    if !command.chars().all(|character| character.is_ascii_alphanumeric() || character == '_') {
        let reason = format!("'{command}' is not the name of a command: write one such as \"find\"");
        return Some(UnknownCommand::Mistake(reason));
    }
    if command.starts_with('_') {
        return None;
    }
    let small = command.to_ascii_lowercase().replace('_', "");
    let sent = match small.as_str() {
        "bulkwrite" => {
            Some("that of a collection sends \"insert\", \"update\" and \"delete\", that of a client \"bulkWrite\"")
        }
        "starttransaction" => Some("the first operation of a transaction starts it"),
        _ => None,
    };
    if let Some(sent) = sent {
        return Some(UnknownCommand::Mistake(format!("'{command}' is a method of drivers, and no command: {sent}")));
    }
    let method = METHODS.iter().find(|(method, _)| *method == small).map(|(_, command)| *command);
    if let Some(known) = method.or_else(|| known().find(|known| known.eq_ignore_ascii_case(&small))) {
        let reason = format!("no driver sends a command '{command}': write \"{known}\", as it is on the wire");
        return Some(UnknownCommand::Mistake(reason));
    }
    Some(match meant(&small) {
        Some(meant) => {
            UnknownCommand::Mistake(format!("no server knows a command '{command}': did you mean \"{meant}\"?"))
        }
        None => UnknownCommand::Possible(format!(
            "MongoDB has no command '{command}': the rule applies if the server has one of its own with this name"
        )),
    })
}

/// Returns the command whose name, or the name of whose method, is nearly this one. The name is in small letters.
fn meant(small: &str) -> Option<&'static str> {
    let distance_max = if small.len() < LONG_NAME_CHARACTERS_MIN { 1 } else { MISSPELT_CHARACTERS_MAX };
    let commands = known().map(|known| (known.to_ascii_lowercase(), known));
    let methods = METHODS.into_iter().map(|(method, command)| (method.to_owned(), command));
    let rated = commands.chain(methods).map(|(name, command)| (strsim::osa_distance(&name, small), command));
    rated
        .filter(|(distance, _)| *distance <= distance_max)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::{ALIASES, METHODS, UnknownCommand, known, unknown_command};

    #[test]
    fn known_names_are_known_and_occur_once() {
        let mut names: Vec<&str> = known().chain(ALIASES).collect();
        assert!(names.len() > 200 && names.iter().all(|name| unknown_command(name).is_none()));
        assert!(METHODS.iter().all(|(_, command)| names.contains(command)));
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_misspelt_name_is_a_mistake_and_an_unknown_one_is_not() {
        let meant = |name: &str, meant: &str| {
            let reason = format!("no server knows a command '{name}': did you mean \"{meant}\"?");
            assert_eq!(unknown_command(name), Some(UnknownCommand::Mistake(reason)));
        };
        for (name, command) in [
            ("updates", "update"),
            ("inserts", "insert"),
            ("fnid", "find"),
            ("aggregator", "aggregate"),
            ("commitTransactions", "commitTransaction"),
            ("find_one_and_updates", "findAndModify"),
            ("update_ones", "update"),
            ("dropDatabases", "dropDatabase"),
        ] {
            meant(name, command);
        }
        for name in ["myOwnCommand", "updateStatistics", "ferretDebugError"] {
            assert!(
                matches!(unknown_command(name), Some(UnknownCommand::Possible(reason)) if reason.contains(name)),
                "{name}"
            );
        }
        assert_eq!(unknown_command("_configsvrMoveChunk"), None);
    }
}
