// A Go program that calls MPI through cgo: a ring of messages, a reduction, and goroutines that work
// meanwhile. MPI is called from one locked thread.
package main

// #include <mpi.h>
// #include <stdlib.h>
// static MPI_Comm world(void) { return MPI_COMM_WORLD; }
// static int swap(void *out, void *in, int to, int from) {
//     return MPI_Sendrecv(out, 8, MPI_UINT64_T, to, 7, in, 8, MPI_UINT64_T, from, 7, MPI_COMM_WORLD,
//                         MPI_STATUS_IGNORE);
// }
// static int reduce(void *in, void *out) {
//     return MPI_Allreduce(in, out, 1, MPI_UINT64_T, MPI_BXOR, MPI_COMM_WORLD);
// }
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
	"unsafe"
)

func work(seed uint64, out chan<- uint64) {
	for i := uint64(0); i < 30000; i++ {
		seed = seed*6364136223846793005 + i
	}
	out <- seed
}

func must(code C.int, what string) {
	if code != 0 {
		fmt.Fprintln(os.Stderr, what, "returned", code)
		os.Exit(3)
	}
}

func main() {
	runtime.LockOSThread()
	rounds := 3000
	if len(os.Args) > 1 {
		rounds, _ = strconv.Atoi(os.Args[1])
	}
	var given C.int
	must(C.MPI_Init_thread(nil, nil, C.MPI_THREAD_FUNNELED, &given), "MPI_Init_thread")
	var rank, size C.int
	must(C.MPI_Comm_rank(C.world(), &rank), "MPI_Comm_rank")
	must(C.MPI_Comm_size(C.world(), &size), "MPI_Comm_size")
	out := (*[8]uint64)(C.calloc(8, 8))
	in := (*[8]uint64)(C.calloc(8, 8))
	sum, results := uint64(rank)+1, make(chan uint64)
	for round := 0; round < rounds; round++ {
		// Half-way it waits until there is such a file, if one is named.
		for round == rounds/2 && len(os.Args) > 2 {
			if _, err := os.Stat(os.Args[2]); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		go work(sum, results)
		go work(sum+1, results)
		for i := range out {
			out[i] = sum + uint64(i)
		}
		to, from := (rank+1)%size, (rank+size-1)%size
		must(C.swap(unsafe.Pointer(out), unsafe.Pointer(in), to, from), "MPI_Sendrecv")
		// Their order is not the program's.
		sum = sum*31 + (<-results ^ <-results)
		for _, value := range in {
			sum = (sum ^ value) * 1099511628211
		}
		if round%100 == 0 {
			var all uint64
			out[0] = sum
			must(C.reduce(unsafe.Pointer(out), unsafe.Pointer(in)), "MPI_Allreduce")
			all = in[0]
			sum ^= all
			runtime.GC()
		}
	}
	out[0] = sum
	must(C.reduce(unsafe.Pointer(out), unsafe.Pointer(in)), "MPI_Allreduce")
	if rank == 0 {
		fmt.Printf("checksum %016x\n", in[0])
	}
	must(C.MPI_Finalize(), "MPI_Finalize")
}
