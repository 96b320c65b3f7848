#!/bin/sh
# Tests the C and Fortran surface of a staged prefix: names, header, values, wrappers, both ABIs.
#
#   tests/abi/run.sh [PREFIX]      default: build
#
# The wheels of MPICH and Open MPI, whose headers are the measure, are fetched with pip into $EYRIE_CACHE (default
# ~/.cache/eyrie). Nothing is skipped: what cannot be had counts as failed.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
here=$root/tests/abi
prefix=$(CDPATH='' cd -- "${1:-$root/build}" && pwd) || exit 2
names=$root/crates/abi/names
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT INT TERM
passed=0
failed=0

# expect DESCRIPTION COMMAND...: one test; shows the command's output if it fails.
expect() {
    what=$1
    shift
    if "$@" >"$tmp/log" 2>&1; then
        passed=$((passed + 1))
        echo "ok      $what"
    else
        failed=$((failed + 1))
        echo "FAILED  $what"
        sed 's/^/        /' "$tmp/log" | head -n 40
    fi
}

exports() { nm -D --defined-only "$1" | awk '{ print $3 }' | LC_ALL=C sort; }
listed() { cat "$@" | grep -v '^#'; }

# exports_all LIB NAMES...: every name is there as MPI_ and PMPI_.
exports_all() {
    lib=$1
    shift
    exports "$lib" >"$tmp/exports"
    listed "$@" | awk '{ print; print "P" $0 }' | LC_ALL=C sort >"$tmp/wanted"
    LC_ALL=C comm -13 "$tmp/exports" "$tmp/wanted" >"$tmp/missing"
    [ -s "$tmp/wanted" ] && [ ! -s "$tmp/missing" ] || { cat "$tmp/missing"; return 1; }
}

# exports_ulfm LIB: every function for failures is there as MPI_, PMPI_, MPIX_ and PMPIX_.
exports_ulfm() {
    exports "$1" >"$tmp/exports"
    listed "$names/ulfm.txt" | sed 's/^MPI_//' |
        awk '{ print "MPI_" $0; print "PMPI_" $0; print "MPIX_" $0; print "PMPIX_" $0 }' |
        LC_ALL=C sort >"$tmp/wanted"
    LC_ALL=C comm -13 "$tmp/exports" "$tmp/wanted" >"$tmp/missing"
    [ -s "$tmp/wanted" ] && [ ! -s "$tmp/missing" ] || { cat "$tmp/missing"; return 1; }
}

# ulfm_header: it declares all of them, in C and C++, and says that they are there.
ulfm_header() {
    {
        echo '#include <mpi-ext.h>'
        echo '#if !defined MPIX_HAVE_ULFM || !defined OMPI_HAVE_MPI_EXT_FTMPI'
        echo '#error no feature macro'
        echo '#endif'
        echo 'typedef void (*any)(void);'
        echo 'any all[] = {'
        listed "$names/ulfm.txt" | sed 's/^MPI_//' |
            awk '{ print "(any)MPI_" $0 ", (any)PMPI_" $0 ", (any)MPIX_" $0 ", (any)PMPIX_" $0 "," }'
        echo '};'
        echo 'int main(void) { return MPI_ERR_REVOKED + MPIX_ERR_PROC_FAILED - 204; }'
    } >"$tmp/ulfm.c"
    cp "$tmp/ulfm.c" "$tmp/ulfm.cc"
    "$prefix/bin/mpicc" -std=c99 -Wall -Werror -pedantic -o "$tmp/ulfm" "$tmp/ulfm.c" && "$tmp/ulfm" &&
        "$prefix/bin/mpicxx" -std=c++17 -Wall -Werror -pedantic -o "$tmp/ulfm" "$tmp/ulfm.cc" && "$tmp/ulfm"
}

# exports_only LIB: nothing but names of MPI (and MPICH's name for MPI_DUP_FN), and all those of the
# C library that are recorded.
exports_only() {
    grep -Ev '^(#|$)' "$names/libc.txt" | cut -d' ' -f1 | LC_ALL=C sort >"$tmp/libc"
    exports "$1" | grep -Ev '^(P?MPIX?_|MPIR_Dup_fn$)' | diff - "$tmp/libc"
}

# needs_only LIB SONAME: the soname, and no library but those of the compiler and of libc.
needs_only() {
    readelf -d "$1" >"$tmp/dynamic"
    grep -q "SONAME.*\[$2\]" "$tmp/dynamic" || { echo "soname is not $2"; return 1; }
    ! grep NEEDED "$tmp/dynamic" |
        grep -Ev '\[(libc\.so\.6|libm\.so\.6|libgcc_s\.so\.1|ld-linux-x86-64\.so\.2)\]'
}

same_header() {
    python3 "$here/check_header.py" "$mpich/include/mpi_abi.h" "$names/standard.txt" \
        >"$tmp/check_header.c" || return 1
    cc -std=gnu11 -Wall -Werror -I"$prefix/include" -fsyntax-only "$tmp/check_header.c"
}

# detects_change: the comparison of headers fails when a value differs.
detects_change() {
    mkdir -p "$tmp/wrong"
    cp "$prefix/include/mpi_functions.h" "$tmp/wrong/"
    sed 's/^\(#define MPI_ERR_TAG *\)4$/\199/' "$prefix/include/mpi.h" >"$tmp/wrong/mpi.h"
    ! cmp -s "$prefix/include/mpi.h" "$tmp/wrong/mpi.h" || return 1
    ! cc -std=gnu11 -I"$tmp/wrong" -fsyntax-only "$tmp/check_header.c"
}

strict_c() {
    echo '#include <mpi.h>' >"$tmp/strict.c"
    echo 'int main(void) { return MPI_Init((int *)0, (char ***)0); }' >>"$tmp/strict.c"
    "$prefix/bin/mpicc" -std=c99 -Wall -Wextra -Werror -pedantic -o "$tmp/strict" "$tmp/strict.c"
}

strict_cxx() {
    cp "$tmp/strict.c" "$tmp/strict.cc"
    "$prefix/bin/mpicxx" -std=c++17 -Wall -Wextra -Werror -pedantic -o "$tmp/strict" "$tmp/strict.cc" &&
        "$tmp/strict"
}

standard_surface() {
    "$prefix/bin/mpicc" -Wall -Wextra -Werror -o "$tmp/surface" "$here/surface.c" &&
        "$tmp/surface"
}

# The same source with MPICH's own header, hence its values, and our library.
mpich_surface() {
    cc -Wall -Wextra -Werror -I"$mpich/include" -o "$tmp/surface12" "$here/surface.c" \
        "$prefix/lib/libmpi.so.12" -Wl,-rpath,"$prefix/lib" && "$tmp/surface12"
}

# The same with Open MPI's, which warns of arrays that may be empty.
openmpi_surface() {
    cc -Wall -Wextra -Werror -Wno-stringop-overflow -Wno-stringop-overread -I"$openmpi/include" \
        -o "$tmp/surface40" "$here/surface.c" "$prefix/lib/libmpi.so.40" \
        -Wl,-rpath,"$prefix/lib" && "$tmp/surface40"
}

# Without random addresses variables lie below 2 GiB, where handles are told from others by a bit.
openmpi_fixed() {
    cc -w -no-pie -fno-pie -I"$openmpi/include" -o "$tmp/fixed40" "$here/surface.c" \
        "$prefix/lib/libmpi.so.40" -Wl,-rpath,"$prefix/lib" && "$tmp/fixed40"
}

# objects LIB NAMES: the variables of these names and their sizes.
objects() {
    readelf -sW --dyn-syms "$1" | awk '$4 == "OBJECT" { sub(/@.*/, "", $8); print $8, $3 }' |
        LC_ALL=C sort -u | LC_ALL=C join - "$2"
}

# All variables that Open MPI's header names, with its sizes, and all functions that it declares.
openmpi_names() {
    theirs=$(readlink -f "$openmpi/lib/libmpi.so.40")
    grep -oE '\<ompi_[a-z0-9_]+' "$openmpi/include/mpi.h" | LC_ALL=C sort -u >"$tmp/named"
    objects "$theirs" "$tmp/named" >"$tmp/theirs"
    objects "$prefix/lib/libmpi.so.40" "$tmp/named" >"$tmp/ours"
    [ -s "$tmp/theirs" ] && diff "$tmp/theirs" "$tmp/ours" || return 1
    grep -oE '\<(P?MPI|OMPI_C)_[A-Za-z0-9_]+ *\(' "$openmpi/include/mpi.h" | tr -d ' (' |
        grep -vxE 'MPI_CONVERSION_FN_NULL|P?MPI_Session_set_info' | # no functions of MPI
        LC_ALL=C sort -u >"$tmp/named"
    exports "$theirs" | LC_ALL=C comm -12 - "$tmp/named" >"$tmp/theirs"
    exports "$prefix/lib/libmpi.so.40" | LC_ALL=C comm -13 - "$tmp/theirs" >"$tmp/missing"
    [ -s "$tmp/theirs" ] && [ ! -s "$tmp/missing" ] || { cat "$tmp/missing"; return 1; }
}

standard_tools() {
    "$prefix/bin/mpicc" -Wall -Wextra -Werror -o "$tmp/tools" "$here/tools.c" && "$tmp/tools"
}

mpich_tools() {
    cc -Wall -Wextra -Werror -I"$mpich/include" -o "$tmp/tools12" "$here/tools.c" \
        "$prefix/lib/libmpi.so.12" -Wl,-rpath,"$prefix/lib" && "$tmp/tools12"
}

before_init() {
    echo '#include <mpi.h>' >"$tmp/early.c"
    echo 'int main(void) { int n; return MPI_Comm_size(MPI_COMM_WORLD, &n); }' >>"$tmp/early.c"
    "$prefix/bin/mpicc" -o "$tmp/early" "$tmp/early.c" || return 1
    "$tmp/early" >"$tmp/out" 2>&1 && return 1
    grep -q 'MPI_Comm_size was called before MPI_Init' "$tmp/out"
}

# A prefix that was moved still compiles programs, and those find the library there.
relocated() {
    mkdir -p "$tmp/moved dir/bin" || return 1
    cp -a "$prefix/bin/mpicc" "$tmp/moved dir/bin/" &&
        cp -a "$prefix/lib" "$prefix/include" "$tmp/moved dir/" &&
        "$tmp/moved dir/bin/mpicc" -o "$tmp/moved" "$tmp/strict.c" &&
        readelf -d "$tmp/moved" | grep -q 'RUNPATH.*moved dir/lib' && "$tmp/moved"
}

shows() {
    "$prefix/bin/mpicc" -show x.c -o x | grep -q -- "-I$prefix/include x.c -o x .*-lmpi_abi" &&
        ! "$prefix/bin/mpicc" -show -c x.c | grep -q -- -lmpi_abi &&
        EYRIE_CC='some compiler' "$prefix/bin/mpicc" -show x.c | grep -q '^some compiler -I' &&
        "$prefix/bin/mpifort" -link-info | grep -q -- '-leyrie_fortran -Wl,--push-state,--no-as-needed -lmpi_abi'
}

fixed_form() {
    "$prefix/bin/mpif77" -w -o "$tmp/fixed" "$here/fixed.f" && "$tmp/fixed"
}

module() {
    "$prefix/bin/mpif90" -Wall -Werror -o "$tmp/module" "$here/module.f90" && (cd "$tmp" && "$tmp/module")
}

module08() {
    "$prefix/bin/mpifort" -Wall -Werror -std=f2018 -J"$tmp" -o "$tmp/module08" "$here/module08.f90" &&
        (cd "$tmp" && "$tmp/module08") &&
        # Whoever does not start programs needs no room for them.
        ! nm -D "$tmp/module08" | grep -i spawn
}

# Counts of 64 bits.
large() {
    "$prefix/bin/mpifort" -Wall -Werror -std=f2018 -J"$tmp" -o "$tmp/large" "$here/large.f90" &&
        (cd "$tmp" && "$tmp/large")
}

# Names that the ABI of MPI 5.0 leaves out.
legacy() {
    "$prefix/bin/mpicc" -Wall -Wextra -Werror -o "$tmp/legacy" "$here/legacy.c" && "$tmp/legacy"
}

mixed() {
    "$prefix/bin/mpicc" -Wall -Wextra -Werror -c -o "$tmp/mixed_c.o" "$here/mixed_c.c" &&
        "$prefix/bin/mpifort" -Wall -o "$tmp/mixed" "$here/mixed.f90" "$tmp/mixed_c.o" && "$tmp/mixed"
}

# forms NUMBER: the same source with mpif.h, the module mpi, the module mpi_f08.
forms() {
    "$prefix/bin/mpifort" -w -cpp "-DFORM=$1" -J"$tmp" -ffree-line-length-none -o "$tmp/forms" \
        "$here/forms.F90" && (cd "$tmp" && "$tmp/forms")
}

# mpif.h has to do in free form as well.
free_form() {
    printf "program p\n  implicit none\n  include 'mpif.h'\n  integer :: e\n" >"$tmp/free.f90"
    printf "  call MPI_Init(e)\n  call MPI_Finalize(e)\nend program p\n" >>"$tmp/free.f90"
    "$prefix/bin/mpifort" -std=f2008 -o "$tmp/free" "$tmp/free.f90" && "$tmp/free"
}

mpich=$(cd "$root/benches" && python3 -c 'import peers; print(peers.prefix("mpich"))') || mpich=/nonexistent

openmpi=$(cd "$root/benches" && python3 -c 'import peers; print(peers.prefix("openmpi"))') || openmpi=/nonexistent

std=$prefix/lib/libmpi_abi.so.1
old=$prefix/lib/libmpi.so.12
expect "libmpi_abi.so.1 exports all names twice" exports_all "$std" "$names/standard.txt" "$names/legacy.txt"
expect "libmpi.so.12 exports all names twice" exports_all "$old" "$names/standard.txt" "$names/legacy.txt"
expect "libmpi_abi.so.1 exports what handles failures" exports_ulfm "$std"
expect "libmpi.so.12 exports what handles failures" exports_ulfm "$old"
expect "libmpi.so.40 exports what handles failures" exports_ulfm "$prefix/lib/libmpi.so.40"
expect "the header for failures, in C and C++" ulfm_header
expect "libmpi_abi.so.1 exports nothing else" exports_only "$std"
expect "libmpi.so.12 exports nothing else" exports_only "$old"
expect "libmpi_abi.so.1: soname and needed libraries" needs_only "$std" libmpi_abi.so.1
expect "libmpi.so.12: soname and needed libraries" needs_only "$old" libmpi.so.12
expect "libmpi.so.40: soname and needed libraries" needs_only "$prefix/lib/libmpi.so.40" libmpi.so.40
expect "libmpi.so.40 has all names and variables of Open MPI's header" openmpi_names
expect "libmpich.so.12 is there for Debian's binaries" test -e "$prefix/lib/libmpich.so.12"
expect "mpi.h agrees with MPICH's mpi_abi.h in every value and prototype" same_header
expect "a changed value in mpi.h is noticed" detects_change
expect "mpi.h in strict C99" strict_c
expect "mpi.h in strict C++17, mpicxx" strict_cxx
expect "surface, standard ABI" standard_surface
expect "surface, MPICH ABI" mpich_surface
expect "surface, Open MPI's ABI" openmpi_surface
expect "surface, Open MPI's ABI, at fixed addresses" openmpi_fixed
expect "tool interface, standard ABI" standard_tools
expect "tool interface, MPICH ABI" mpich_tools
expect "a call before MPI_Init is told as such" before_init
expect "wrappers show what they do" shows
expect "a moved prefix works" relocated
expect "names that the ABI leaves out, in C" legacy
expect "Fortran: no name of C is missing without a reason" python3 "$here/fortran_names.py" "$prefix"
expect "Fortran and C in one program" mixed
for form in 1 2 3; do
    expect "Fortran: what a prototype does not tell, form $form" forms "$form"
done
expect "Fortran: fixed form with mpif.h" fixed_form
expect "Fortran: free form with mpif.h" free_form
expect "Fortran: module mpi" module
expect "Fortran: module mpi_f08" module08
expect "counts of 64 bits in mpi_f08" large

echo "abi: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
