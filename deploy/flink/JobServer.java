import org.apache.beam.runners.flink.FlinkJobServerDriver;
import org.apache.flink.api.common.JobExecutionResult;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.JobListener;

/** Beam's job server, with two mends. */
public class JobServer implements JobListener {
    private JobClient job;

    /** Would send the whole class path, 160 jars, to the cluster with every job: 10 seconds of work. The workers here have the same jars. */
    public static void main(String[] args) throws Exception {
        System.clearProperty("java.class.path"); // where Beam looks for what to send
        FlinkJobServerDriver.main(args);
    }

    @Override
    public void onJobSubmitted(JobClient submitted, Throwable error) {
        job = submitted;
    }

    /** Beam cancels a batch job by no longer waiting for it. Flink's `execution.job-listeners` names this class, one instance a job. */
    @Override
    public void onJobExecuted(JobExecutionResult result, Throwable error) {
        if (job != null && error instanceof InterruptedException) {
            job.cancel();
        }
    }
}
