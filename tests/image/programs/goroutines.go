// Goroutines, channels, garbage collection, timers, files and a map: what every Go program's runtime
// does, with its signals, its threads and its poller.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"sync"
	"time"
)

type node struct {
	left, right *node
	value       uint64
}

func build(depth int, at uint64) *node {
	if depth == 0 {
		return &node{value: at * 0x9e3779b97f4a7c15}
	}
	return &node{build(depth-1, at*2), build(depth-1, at*2+1), at}
}

func (n *node) sum() uint64 {
	if n == nil {
		return 1
	}
	return n.left.sum()*31 + n.right.sum()*17 + n.value
}

func worker(in <-chan uint64, out chan<- uint64) {
	for v := range in {
		out <- build(7, v).sum()
	}
	close(out)
}

func main() {
	rounds := 1500
	if len(os.Args) > 1 {
		rounds, _ = strconv.Atoi(os.Args[1])
	}
	if times, err := strconv.Atoi(os.Getenv("ROUNDS_TIMES")); err == nil {
		rounds *= times
	}
	wrong := 0
	log, err := os.Create("go.log")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	const workers = 4
	var in, out [workers]chan uint64
	for w := range in {
		in[w], out[w] = make(chan uint64, 2), make(chan uint64)
		go worker(in[w], out[w])
	}
	seen := map[string]uint64{}
	var lock sync.Mutex
	var all sync.WaitGroup
	checksum := uint64(14695981039346656037)
	for i := 0; i < rounds; i++ {
		for w := range in {
			in[w] <- uint64(i*workers + w)
		}
		for w := range out {
			checksum = (checksum ^ <-out[w]) * 1099511628211
		}
		all.Add(1)
		go func(i int) {
			defer all.Done()
			lock.Lock()
			seen[strconv.Itoa(i%200)] += uint64(i)
			lock.Unlock()
		}(i)
		fmt.Fprintf(log, "%d %016x\n", i, checksum)
		if i%100 == 0 {
			runtime.GC()
			before := time.Now()
			time.Sleep(100 * time.Microsecond)
			if time.Since(before) < 100*time.Microsecond {
				wrong++
			}
		}
	}
	for w := range in {
		close(in[w])
	}
	all.Wait()
	keys := make([]string, 0, len(seen))
	for key := range seen {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	for _, key := range keys {
		checksum = (checksum ^ seen[key]) * 1099511628211
	}
	log.Seek(0, 0)
	lines := 0
	for scanner := bufio.NewScanner(log); scanner.Scan(); lines++ {
		if number := 0; true {
			fmt.Sscanf(scanner.Text(), "%d", &number)
			if number != lines {
				wrong++
			}
		}
	}
	if lines != rounds {
		wrong++
	}
	fmt.Printf("goroutines %016x %d wrong\n", checksum, wrong)
	if wrong != 0 {
		os.Exit(1)
	}
}
