# LIBSVM text ("label index:value ...") to COPY text: id, features_k, features_v, label.
# -v first=N      number of the first row
# -v dims=D       dense rows of D values, features_k NULL (0: sparse)
BEGIN { id = first + 0 }
/^[ \t]*(#|$)/ { next }
{
    sub(/[ \t]*#.*$/, "")
    keys = values = comma = ""
    if (dims > 0) {
        for (j = 1; j <= dims; j++) x[j] = 0
    }
    for (i = 2; i <= NF; i++) {
        at = index($i, ":")
        key = substr($i, 1, at - 1)
        value = substr($i, at + 1)
        if (at < 2 || key + 0 < 1 || (dims > 0 && key + 0 > dims)) {
            printf "line %d: cannot read \"%s\"\n", NR, $i > "/dev/stderr"
            failed = 1
            exit 1
        }
        if (dims > 0) x[key + 0] = value
        else { keys = keys comma key; values = values comma value; comma = "," }
    }
    if (dims > 0) {
        values = x[1]
        for (j = 2; j <= dims; j++) values = values "," x[j]
        printf "%d\t\\N\t{%s}\t%s\n", id, values, $1
    } else printf "%d\t{%s}\t{%s}\t%s\n", id, keys, values, $1
    id++
}
END { if (failed) exit 1 }
