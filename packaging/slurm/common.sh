# What prolog, epilog and health share. Slurm runs them as root, without PATH.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin${SLURM_BIN:+:$SLURM_BIN}
export PATH
# Where it is installed: PREFIX/share/eyrie/slurm. EYRIE in the environment of slurmd names another.
eyrie=${EYRIE:-$here/../../../bin/eyrie}

# Processes of a job: those whose environment says so, and that are the user's.
of_job() { # of_job UID JOB
    grep -lszFx "SLURM_JOB_ID=$2" /proc/[0-9]*/environ | while IFS=/ read -r _ _ pid _; do
        user=$(sed -n 's/^Uid:[[:space:]]*\([0-9]*\).*/\1/p' "/proc/$pid/status" 2>/dev/null)
        [ "$user" != "$1" ] || echo "$pid"
    done
}

# Whether a process is one of Eyrie's: a daemon, or a rank.
is_eyrie() { # is_eyrie PID
    word=$({ tr '\0' '\n' <"/proc/$1/cmdline"; } 2>/dev/null | head -n 1)
    case ${word##*/} in
    eyrie | eyrie-*) return 0 ;;
    esac
    grep -qszx 'EYRIE_RANK=.*' "/proc/$1/environ"
}

# A variable of a process's environment.
variable() { # variable PID NAME
    { tr '\0' '\n' <"/proc/$1/environ"; } 2>/dev/null | sed -n "s/^$2=//p" | head -n 1
}

# The homes of Eyrie that a job's processes use here, each once; with WORD only those of daemons that are
# called so.
homes() { # homes UID JOB [WORD]
    wanted=${3:-}
    of_job "$1" "$2" | while read -r pid; do
        is_eyrie "$pid" || continue
        [ -z "$wanted" ] || grep -qszFx -- "$wanted" "/proc/$pid/cmdline" || continue
        home=$(variable "$pid" EYRIE_HOME)
        [ -n "$home" ] || home=$(variable "$pid" HOME)/.eyrie
        printf '%s\n' "$home"
    done | sort -u
}

# Runs a command with the rights of a user and of nobody else: nothing that a user has made is
# followed as root.
as_user() { # as_user UID COMMAND...
    user=$1
    shift
    group=$(getent passwd "$user" | cut -d: -f4)
    setpriv --reuid="$user" --regid="${group:-$user}" --clear-groups "$@"
}

# Folders in which a job's nodes keep what they store here (EYRIE_LOCAL), each once: by what they were told,
# else by what Slurm gave them.
locals() { # locals UID JOB
    of_job "$1" "$2" | while read -r pid; do
        is_eyrie "$pid" || continue
        for name in EYRIE__LOCAL EYRIE_LOCAL SLURM_TMPDIR TMPDIR; do
            folder=$(variable "$pid" "$name")
            [ -z "$folder" ] || break
        done
        [ -z "$folder" ] || printf '%s\n' "$folder"
    done | sort -u
}

# Removes the storage of nodes that are dead: nobody holds its lock. What they stored elsewhere
# (EYRIE_LOCAL), a link leads to.
sweep() { # sweep UID HOME
    as_user "$1" sh -c '
        for link in "$1/nodes/$(uname -n)"/*/store "$1"/jobs/*/node-* "$1"/jobs/*/images; do
            [ -L "$link" ] && away=$(readlink "$link") || continue
            case $away in
            */eyrie-"$2"/*/store) away=${away%/store} ;;
            *) continue ;;
            esac
            [ ! -f "$away/lock" ] || flock -n "$away/lock" rm -rf "$away"
        done
        for folder in "$1/nodes/$(uname -n)"/*/; do
            [ ! -f "$folder/lock" ] || flock -n "$folder/lock" rm -rf "$folder"
        done' sh "$2" "$1"
}

# The same of what nodes stored in a folder of this machine.
sweep_local() { # sweep_local UID FOLDER
    as_user "$1" sh -c '
        for folder in "$1/eyrie-$2"/*/; do
            [ ! -f "$folder/lock" ] || flock -n "$folder/lock" rm -rf "$folder"
        done' sh "$2" "$1"
}
