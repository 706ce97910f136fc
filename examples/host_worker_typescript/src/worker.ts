// A host's own worker for Retold, in TypeScript.
//
//   npm start -- --task-queue my-host     where: TEMPORAL_ADDRESS and friends, else localhost:7233

import { parseArgs } from "node:util";
import { loadClientConnectConfig } from "@temporalio/envconfig";
import { NativeConnection, Worker } from "@temporalio/worker";
import { BEAT_MS, generation, quotingModel } from "./generation";

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      "task-queue": { type: "string", default: "my-host" },
      "takes-ms": { type: "string", default: "0" }, // pretend that the model takes this long
    },
  });
  const taskQueue = values["task-queue"];
  const { connectionOptions, namespace } = loadClientConnectConfig();
  const connection = await NativeConnection.connect(connectionOptions);
  try {
    const worker = await Worker.create({
      connection,
      namespace: namespace ?? "default",
      taskQueue,
      activities: generation(quotingModel(Number(values["takes-ms"]))),
      // The SDK sends at most one beat in this time, and hears of a cancellation only in the reply to one.
      maxHeartbeatThrottleInterval: BEAT_MS,
      defaultHeartbeatThrottleInterval: BEAT_MS,
      shutdownGraceTime: "10s",
    });
    const stopped = worker.run(); // until SIGINT or SIGTERM; then it finishes what is in hand
    console.log(`serving generate_draft and regenerate on '${taskQueue}'`);
    await stopped;
  } finally {
    await connection.close();
  }
}

main().catch((error: unknown) => {
  console.error(error);
  process.exitCode = 1;
});
