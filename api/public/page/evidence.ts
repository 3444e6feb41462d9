import { html, type Html } from '../../docs/html.js';

/** The shown answer, for the script that verifies it in the browser. */
export interface ServedAnswer {
  /** The lookup response, as JSON text. */
  answer: string;
  /** The log key that signed the snapshot, as C2SP vkey. */
  vkey: string;
  generation: number;
}

/** The section is hidden until the script of the page runs. */
export function evidenceSection({ answer, vkey, generation }: ServedAnswer): Html {
  return html`<section
    id="evidence"
    class="evidence"
    aria-labelledby="evidence-title"
    data-answer="${answer}"
    data-vkey="${vkey}"
    data-generation="${generation}"
    hidden
  >
    <h2 id="evidence-title">Check in your browser</h2>
    <div id="evidence-result">
      <div role="status"></div>
      <div role="alert"></div>
    </div>
    <form id="pin" hidden>
      <p>This server names the key <code>${vkey}</code>.</p>
      <label for="log-vkey">
        Compare this key with the key that the operator publishes elsewhere, or paste that key here.
      </label>
      <div class="row">
        <input
          id="log-vkey"
          type="text"
          value="${vkey}"
          required
          pattern="[^+]+[+][0-9a-f]{8}[+].+"
          title="A vkey: name+hash+key"
          autocomplete="off"
          autocapitalize="off"
          spellcheck="false"
        />
        <button type="submit">Pin this key</button>
      </div>
    </form>
    <details>
      <summary>What this check finds</summary>
      <p>
        With a pinned key of the log, a script of this page verifies the proof of the answer from
        the signed log, and compares the answer with the page; it does not verify history and chain.
        The check finds a replayed or altered answer of a cache, mirror or proxy, and a wrong answer
        of a server that sends an unchanged page. The server also sends the script: a server that
        changes its page can show anything. Against such a server, use the command
        <code>svc lookup</code> or the SDK, with a key from another source.
      </p>
      <form id="unpin" hidden><button type="submit">Remove the pinned key</button></form>
    </details>
    <script src="/page/verify.js" type="module"></script>
  </section>`;
}
