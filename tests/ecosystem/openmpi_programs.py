"""Large programs that Debian built for Open MPI: undisturbed, with a rank and with a node killed, with the
same results. Their packages are fetched and unpacked as those of openmpi.py are."""

import glob
import os
import re
import subprocess

from openmpi import ROOT, Place

# Of each only what its test runs.
ESPRESSO = "quantum-espresso", "quantum-espresso-data"
FOAM = ("openfoam",)
GROMACS = "gromacs", "gromacs-data"
TREES = ("iqtree",)

# Two atoms of silicon, one of them moved.
SILICON = """\
&control
 calculation='scf', prefix='si', outdir='./out', pseudo_dir='{pseudo}', tstress=.true., tprnfor=.true., disk_io='none'
/
&system
 ibrav=2, celldm(1)=10.2, nat=2, ntyp=1, ecutwfc=24.0
/
&electrons
 conv_thr=1.0d-10, mixing_beta=0.3
/
ATOMIC_SPECIES
 Si 28.086 Si.pz-vbc.UPF
ATOMIC_POSITIONS alat
 Si 0.00 0.00 0.00
 Si 0.26 0.25 0.25
K_POINTS automatic
 4 4 4 1 1 1
"""


def test_quantum_espresso_of_debian_survives(folder):
    # It sends what pads its blocks, which it has from malloc and never writes.
    place = Place(folder, ESPRESSO, MALLOC_PERTURB_="1")
    with open(f"{folder}/si.in", "w") as file:
        file.write(SILICON.format(pseudo=f"{place.usr}/share/espresso/pseudo"))
    numbers = lambda text: re.findall(r"^.*(?:total energy +=|scf accuracy|force =|P=).*$", text, re.M)
    right = place.survives(3, ["bin/pw.x", "-in", "si.in"], "iteration # +4", numbers)
    assert any(line.startswith("!") for line in right), right


# A lid that moves over a square cavity, as in OpenFOAM's first tutorial.
CAVITY = {
    "system/controlDict": """\
application icoFoam; startFrom startTime; startTime 0; stopAt endTime; endTime 0.5; deltaT 0.0025;
writeControl timeStep; writeInterval 200; purgeWrite 0; writeFormat ascii; writePrecision 12;
writeCompression off; timeFormat general; timePrecision 6; runTimeModifiable false;
""",
    "system/blockMeshDict": """\
scale 0.1;
vertices ((0 0 0) (1 0 0) (1 1 0) (0 1 0) (0 0 0.1) (1 0 0.1) (1 1 0.1) (0 1 0.1));
blocks (hex (0 1 2 3 4 5 6 7) (40 40 1) simpleGrading (1 1 1));
edges ();
boundary (movingWall {type wall; faces ((3 7 6 2));}
    fixedWalls {type wall; faces ((0 4 7 3) (2 6 5 1) (1 5 4 0));}
    frontAndBack {type empty; faces ((0 3 2 1) (4 5 6 7));});
mergePatchPairs ();
""",
    "system/fvSchemes": """\
ddtSchemes { default Euler; } gradSchemes { default Gauss linear; }
divSchemes { default none; div(phi,U) Gauss linear; } laplacianSchemes { default Gauss linear orthogonal; }
interpolationSchemes { default linear; } snGradSchemes { default orthogonal; }
""",
    "system/fvSolution": """\
solvers { p { solver PCG; preconditioner DIC; tolerance 1e-06; relTol 0.05; } pFinal { $p; relTol 0; }
    U { solver smoothSolver; smoother symGaussSeidel; tolerance 1e-05; relTol 0; } }
PISO { nCorrectors 2; nNonOrthogonalCorrectors 0; pRefCell 0; pRefValue 0; }
""",
    "system/decomposeParDict": "numberOfSubdomains 3; method simple; coeffs { n (3 1 1); delta 0.001; }\n",
    "constant/transportProperties": "nu 0.01;\n",
    "0/p": """\
dimensions [0 2 -2 0 0 0 0]; internalField uniform 0;
boundaryField { movingWall {type zeroGradient;} fixedWalls {type zeroGradient;} frontAndBack {type empty;} }
""",
    "0/U": """\
dimensions [0 1 -1 0 0 0 0]; internalField uniform (0 0 0);
boundaryField { movingWall {type fixedValue; value uniform (1 0 0);} fixedWalls {type noSlip;}
    frontAndBack {type empty;} }
""",
}
KINDS = {"0/p": "volScalarField", "0/U": "volVectorField"}


def test_openfoam_of_debian_survives(folder):
    place = Place(folder, FOAM, WM_PROJECT_DIR="{usr}/share/openfoam")
    for name, text in CAVITY.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            kind, of = KINDS.get(name, "dictionary"), os.path.basename(name)
            file.write(f"FoamFile {{ version 2.0; format ascii; class {kind}; object {of}; }}\n{text}")
    for tool in "blockMesh", "decomposePar":
        # They are no programs of MPI, and Debian has a library for that.
        alone = {**place.env, "LD_LIBRARY_PATH": f"{place.usr}/lib/dummy:{place.env['LD_LIBRARY_PATH']}"}
        command = [f"{place.usr}/bin/{tool}"]
        done = subprocess.run(command, cwd=folder, env=alone, capture_output=True, text=True)
        assert done.returncode == 0, done

    def flow(text):
        """The residuals of all steps, and the fields at the end, in all their digits."""
        fields = []
        for path in sorted(glob.glob(f"{folder}/processor*/0.5/[Up]")):
            with open(path) as file:
                fields.append(re.search(r"^internalField.*?^\)", file.read(), re.M | re.S).group())
            os.remove(path)
        assert len(fields) == 6, text[-2000:]
        return re.findall(r"^.*(?:Solving for|continuity).*$", text, re.M), fields

    # It sends its process number, and names no library of MPI but by one of its own: the C library would be
    # asked before ours (docs/reference/recorded.md).
    ours = os.path.join(ROOT, "build", "lib", "libmpi.so.40")
    shell = f"LD_PRELOAD={ours} exec {place.usr}/bin/icoFoam -parallel"
    place.survives(3, ["/bin/sh", "-c", shell], r"^Time = 0\.1$", flow)


WATER = """\
#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spce.itp"
[ system ]
water
[ molecules ]
"""
STEPS = """\
integrator = md
nsteps = 600
dt = 0.001
nstlog = 50
nstcalcenergy = 10
cutoff-scheme = Verlet
coulombtype = PME
rcoulomb = 0.9
rvdw = 0.9
gen-vel = yes
gen-seed = 7
"""


def test_gromacs_of_debian_survives(folder):
    # Without that it gathers counts of the processor's cycles, for a line at its end.
    place = Place(folder, GROMACS, GMXLIB="{usr}/share/gromacs/top", GMX_DD_RECORD_LOAD="0", GMX_MAXBACKUP="-1")
    for name, text in ("t.top", WATER), ("md.mdp", STEPS):
        with open(f"{folder}/{name}", "w") as file:
            file.write(text)
    box = "solvate", "-cs", "spc216.gro", "-box", "2.6", "2.6", "2.6", "-o", "w.gro", "-p", "t.top"
    input_of = "grompp", "-f", "md.mdp", "-c", "w.gro", "-p", "t.top", "-o", "t.tpr", "-maxwarn", "3"
    for words in box, input_of:
        place.run(["-n", "1"], "gmx_mpi", *words)

    def atoms(_):
        """Where all are at the end, and how fast."""
        with open(f"{folder}/confout.gro") as file:
            found = file.read().splitlines()[1:]
        os.remove(f"{folder}/confout.gro")
        return found

    words = "-s", "t.tpr", "-dlb", "no", "-reprod", "-ntomp", "1", "-pin", "off", "-v", "-stepout", "50"
    # It prints to the standard error alone.
    shell = f"exec {place.usr}/bin/gmx_mpi mdrun {' '.join(words)} 2>&1"
    right = place.survives(3, ["/bin/sh", "-c", shell], "step 200", atoms, "0.5")
    assert len(right) > 1000, right


def alignment():
    """Fourteen sequences that came of one another, by a generator of numbers of its own."""
    seed = 5

    def below(n):
        nonlocal seed
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        return (seed >> 33) % n

    all_of = ["".join("ACGT"[below(4)] for _ in range(600))]
    while len(all_of) < 14:
        parent = all_of[below(len(all_of))]
        all_of.append("".join("ACGT"[below(4)] if below(100) < 14 else letter for letter in parent))
    return " 14 600\n" + "".join(f"T{n:02}       {letters}\n" for n, letters in enumerate(all_of))


def test_iqtree_of_debian_survives(folder):
    """A program in C++ that needs libmpi_cxx.so.40."""
    place = Place(folder, TREES)
    with open(f"{folder}/a.phy", "w") as file:
        file.write(alignment())

    def tree(_):
        with open(f"{folder}/o.treefile") as file:
            found = file.read()
        for path in glob.glob(f"{folder}/o.*"):
            os.remove(path)
        return found

    words = "-s", "a.phy", "-m", "GTR+G", "-seed", "7", "-nt", "1", "-redo", "-pre", "o"
    place.survives(3, ["bin/iqtree2-mpi", *words], "Computing", tree)


for case in [case for name, case in globals().items() if name.startswith("test_")]:
    case.takes_long = True
