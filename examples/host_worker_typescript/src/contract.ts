// The JSON of the two activities, as `retold schema` prints it: HostDraftInput, HostRegenerateInput, HostAnswer.
// Later versions may send more fields; ignore those you do not know.

export interface Principal {
  tenant: string;
  user: string;
}

/** Answer the user from this and nothing remembered. */
export interface HostDraftInput {
  schema_version: 1;
  principal: Principal;
  session_id: string;
  turn_id: string;
  text: string;
  public_context: string | null;
  /** Reviewed standing instructions, the same bytes all session long: put it where a prefix cache can hold it. */
  profile: string;
  /** How long an answer may take, in milliseconds. */
  limit_ms: number;
  /** ISO 8601 in UTC. An answer after this time is not used. */
  deadline_at: string | null;
}

/** The same, plus what memory may add. Change nothing else in the prompt. */
export interface HostRegenerateInput extends HostDraftInput {
  /** The admitted records, escaped, inside a delimiter drawn for this turn: data, not instructions. */
  memory: string;
}

export interface HostAnswer {
  /** 1 to 32,000 characters of valid Unicode, not blank: call `toWellFormed()` on text you cut. */
  text: string;
  model?: string;
  prompt_tokens?: number;
  completion_tokens?: number;
}
