# A shell with a pipeline, a job in the background and one whose output it takes.
rounds=$1
(
    i=0
    while [ $i -lt "$rounds" ]; do
        i=$((i + 1))
        echo "$i"
    done
) | while read -r n; do
    echo $((n * n % 1013))
done | sort -n | uniq -c >pipeline.part &
waited=$!
lines=0
for k in 1 2 3 4; do
    text=$(i=0; while [ $i -lt "$rounds" ]; do i=$((i + 1)); echo "$k $i"; done | grep -c 7)
    lines=$((lines + text))
done
wait $waited
code=$?
{
    echo "code $code lines $lines"
    cat pipeline.part
} >out.part
mv out.part out
