// The two activities a host serves. Retold does the rest of the turn: planning, retrieval, admission, deadlines.

import { setTimeout as sleep } from "node:timers/promises";
import { ApplicationFailure, cancellationSignal, heartbeat } from "@temporalio/activity";
import type { HostAnswer, HostDraftInput, HostRegenerateInput } from "./contract";

export const BEAT_MS = 200;
const INSTRUCTIONS = "You are a helpful assistant. Answer the user's message.";

export interface Prompt {
  system: string;
  user: string;
}

export interface Model {
  name: string;
  generate(prompt: Prompt, signal: AbortSignal): Promise<string>;
}

/** Named as the contract names them. */
export function generation(model: Model) {
  return {
    generate_draft: (asked: HostDraftInput): Promise<HostAnswer> => answer(model, asked, prompt(asked)),
    regenerate: (asked: HostRegenerateInput): Promise<HostAnswer> => answer(model, asked, prompt(asked, asked.memory)),
  };
}

/** Stands in for your model and is none: it repeats the question and quotes the memory it was given. */
export function quotingModel(takesMs: number): Model {
  return {
    name: "quotes-by-rule",
    async generate({ system, user }, signal) {
      await sleep(takesMs, undefined, { signal });
      const question = user.slice(user.lastIndexOf("\n\n") + 1).trim();
      const block = /<memory-(\w+)>\n([^]*)\n<\/memory-\1>/.exec(system)?.[2];
      if (block === undefined) return `You ask: ${question} I know nothing about you that would help.`;
      const known = block.split("\n").map((line) => JSON.parse(line) as { date: string; text: string });
      return `You ask: ${question} ${known.map(({ date, text }) => `You told me on ${date}: ${text}`).join(" ")}`;
    },
  };
}

async function answer(model: Model, asked: HostDraftInput, prompt: Prompt): Promise<HostAnswer> {
  const leftMs = millisecondsLeft(asked);
  const late = AbortSignal.timeout(leftMs);
  const signal = AbortSignal.any([late, cancellationSignal()]);
  // Beats tell Retold that this worker lives, and bring back the news when it has given the call up.
  const beating = setInterval(() => heartbeat(), BEAT_MS);
  try {
    return { text: await Promise.race([model.generate(prompt, signal), aborted(signal)]), model: model.name };
  } catch (error) {
    // Nobody waits any longer, so nothing is gained by trying again.
    if (late.aborted) throw ApplicationFailure.nonRetryable(`no answer in ${leftMs} ms`, "LimitReached");
    throw cancellationSignal().aborted ? cancellationSignal().reason : error;
  } finally {
    clearInterval(beating);
  }
}

/**
 * The same bytes for draft and regeneration, but for the memory: so its effect is all there is to see. The memory
 * comes with a sentence that says it is data; put it in as it is.
 */
function prompt(asked: HostDraftInput, memory = ""): Prompt {
  const system = [INSTRUCTIONS, asked.profile].filter((part) => part !== "").join("\n\n") + memory;
  const user = asked.public_context ? `${asked.public_context}\n\n${asked.text}` : asked.text;
  return { system, user };
}

/** How long an answer is still of use: a duration and, under a latency budget, a time after which it is not. */
function millisecondsLeft(asked: HostDraftInput): number {
  const untilDeadline = asked.deadline_at === null ? Infinity : Date.parse(asked.deadline_at) - Date.now();
  return Math.max(0, Math.floor(Math.min(asked.limit_ms, untilDeadline)));
}

/** Rejects when the signal says so, for models that do not listen to it. */
function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const giveUp = () => reject(signal.reason);
    if (signal.aborted) giveUp();
    else signal.addEventListener("abort", giveUp, { once: true });
  });
}
