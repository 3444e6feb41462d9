import { parseTime } from './time.js';

/** A time that is one whatever the month: no later day than the 28th. The others are looked up. */
const PLAIN_TIME =
  /[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{3}Z/y;

const HEX_32 = /[0-9a-f]{32}/y;
const HEX_64 = /[0-9a-f]{64}/y;

/**
 * Follows a text along a template of fixed parts and fields, in the order in which RFC 8785 has
 * them. A text that goes all the way is in canonical form by that alone: nothing is skipped, and no
 * part has a second spelling. After the first departure everything reads as empty and `ended` is
 * false. It knows the plain cases only, so a departure says nothing: the general parser decides.
 */
export class TemplateReader {
  private at = 0;
  private followed = true;

  constructor(private readonly text: string) {}

  /** Whether all of the text was read, and all of it as the template has it. */
  get ended(): boolean {
    return this.followed && this.at === this.text.length;
  }

  /** The part must come next. */
  part(part: string): void {
    if (this.text.startsWith(part, this.at)) this.at += part.length;
    else this.followed = false;
  }

  /** Takes the part if it comes next. */
  takes(part: string): boolean {
    if (!this.text.startsWith(part, this.at)) return false;
    this.at += part.length;
    return true;
  }

  /** 32 or 64 lower-case hexadecimal digits. */
  hex(count: 32 | 64): string {
    return this.matching(count === 64 ? HEX_64 : HEX_32);
  }

  /** `count` characters that fit the pattern. */
  fitting(count: number, pattern: RegExp): string {
    const end = this.at + count;
    const field = this.text.slice(this.at, end);
    return pattern.test(field) ? this.taken(end) : this.depart();
  }

  /** What the sticky pattern matches next. */
  matching(pattern: RegExp): string {
    pattern.lastIndex = this.at;
    return pattern.test(this.text) ? this.taken(pattern.lastIndex) : this.depart();
  }

  /** A time in its one spelling. */
  time(): string {
    const end = this.at + 24;
    PLAIN_TIME.lastIndex = this.at;
    if (PLAIN_TIME.test(this.text)) return this.taken(end);
    try {
      parseTime(this.text.slice(this.at, end));
    } catch {
      return this.depart();
    }
    return this.taken(end);
  }

  /** One of the words, none of which begins another. */
  oneOf<W extends string>(words: readonly W[]): W {
    for (const word of words) {
      if (this.takes(word)) return word;
    }
    this.followed = false;
    return words[0]!;
  }

  /**
   * Up to the next quotation mark, 1 to `most` characters that stand for themselves in JSON. Pairs
   * of surrogates are left to the general parser, so that characters are code points.
   */
  plain(most: number): string {
    const start = this.at;
    for (let i = start; i - start <= most; i++) {
      const code = this.text.charCodeAt(i);
      if (code === 0x22) return i > start ? this.taken(i) : this.depart();
      if (!(code >= 0x20) || code === 0x5c || (code >= 0xd800 && code <= 0xdfff)) break;
    }
    return this.depart();
  }

  /** `null`, or what `read` takes between quotation marks. */
  nullOr(read: () => string): string | null {
    if (this.takes('null')) return null;
    return this.quoted(read);
  }

  quoted(read: () => string): string {
    this.part('"');
    const field = read();
    this.part('"');
    return field;
  }

  private taken(end: number): string {
    const field = this.text.slice(this.at, end);
    this.at = end;
    return field;
  }

  private depart(): string {
    this.followed = false;
    return '';
  }
}
