#!/bin/sh
# Copy the jars of Flink 1.19, Beam's Flink runner and its job server to .engines/flink: 160 jars, 155 MB, of the versions in pom.xml.
# Needs Maven and a JDK, 11 or 17. About 2 minutes.
set -eu
cd "$(dirname "$0")"
target="$(cd ../.. && pwd)/.engines/flink"
cat pom.xml JobServer.java | cmp -s - "$target/made-of" && exit 0

if ! command -v mvn >/dev/null; then
    echo "Flink's jars are downloaded by Maven, and there is no mvn here: install Maven 3.6 or later (https://maven.apache.org)" >&2
    exit 1
fi
if ! command -v javac >/dev/null; then
    echo "Flink runs on Java 11 or 17, and there is no javac here: install a JDK, such as https://adoptium.net" >&2
    exit 1
fi
java=$(javac -version 2>&1 | sed 's/javac \([0-9]*\).*/\1/')
if [ "$java" != 11 ] && [ "$java" != 17 ]; then
    echo "Flink 1.19 runs on Java 11 or 17, and $(command -v javac) is of Java $java: put another one first in PATH" >&2
    exit 1
fi

rm -rf "$target"
mvn --quiet --batch-mode org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$target"
javac --class-path "$target/*" -d "$target/classes" JobServer.java
cat pom.xml JobServer.java >"$target/made-of"  # last: it says that all is here, and of which versions
