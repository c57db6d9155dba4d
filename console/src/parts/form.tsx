/** A form from a JSON Schema; what no field fits is written as JSON. */
import { useSignal } from "@preact/signals";

import { inline } from "../format";
import { t } from "../i18n";
import { parseJson } from "../json";
import type { Json, Schema } from "../types";

interface Props {
  schema: Schema | null;
  value: { [name: string]: Json };
  onChange: (value: { [name: string]: Json }) => void;
  onError: (error: string | null) => void;
}

export function SchemaForm({ schema, value, onChange, onError }: Props) {
  const asJson = useSignal(!schema?.properties);
  const text = useSignal(JSON.stringify(value, null, 2));
  const bad = useSignal<string | null>(null);

  const report = (error: string | null) => {
    bad.value = error;
    onError(error);
  };
  const toggle = () => {
    if (!asJson.value) text.value = JSON.stringify(value, null, 2);
    report(null);
    asJson.value = !asJson.value;
  };
  const write = (written: string) => {
    text.value = written;
    try {
      const parsed = parseJson(written);
      if (parsed === null || typeof parsed !== "object" || Array.isArray(parsed)) throw new Error("{ ... }");
      report(null);
      onChange(parsed);
    } catch (failure) {
      report(t("form.bad_json", { error: (failure as Error).message }));
    }
  };

  const names = Object.keys(schema?.properties ?? {});
  for (const name of Object.keys(value)) if (!names.includes(name)) names.push(name);
  return (
    <div class="form">
      {schema?.properties && (
        <button type="button" class="small" onClick={toggle}>
          {asJson.value ? t("form.fields") : t("form.json")}
        </button>
      )}
      {asJson.value ? (
        <textarea class="mono" rows={8} spellcheck={false} aria-label={t("form.json")} aria-invalid={bad.value !== null} value={text.value} onInput={(event) => write(event.currentTarget.value)} />
      ) : (
        names.map((name) => (
          <Field
            key={name}
            name={name}
            schema={schema?.properties?.[name] ?? {}}
            required={schema?.required?.includes(name) ?? false}
            value={value[name]}
            onChange={(changed) => {
              const { [name]: _, ...others } = value;
              const next: { [name: string]: Json } = {};
              for (const known of names) {
                if (known === name) {
                  if (changed !== undefined) next[name] = changed;
                } else if (known in others) next[known] = others[known]!;
              }
              onChange(next);
            }}
            onError={report}
          />
        ))
      )}
      {bad.value && (
        <p class="bad" role="alert">
          {bad.value}
        </p>
      )}
    </div>
  );
}

interface FieldProps {
  name: string;
  schema: Schema;
  required: boolean;
  value: Json | undefined;
  onChange: (value: Json | undefined) => void;
  onError: (error: string | null) => void;
}

function Field({ name, schema, required, value, onChange, onError }: FieldProps) {
  const id = `field-${name}`;
  const kind = kindOf(schema, value);
  const unset = value === undefined;
  return (
    <div class="field">
      <label for={id}>
        <code>{name}</code> <span class="quiet">{kind}</span>
        {required && <span class="quiet"> · {t("form.required")}</span>}
      </label>
      <Input id={id} kind={kind} schema={schema} value={value} onChange={onChange} onError={onError} />
      {!required && !unset && (
        <button type="button" class="small" onClick={() => onChange(undefined)} aria-label={`${t("form.unset")}: ${name}`}>
          {t("form.unset")}
        </button>
      )}
      {schema.description && <p class="hint">{schema.description}</p>}
    </div>
  );
}

type Kind = "string" | "number" | "integer" | "boolean" | "choice" | "json";

function kindOf(schema: Schema, value: Json | undefined): Kind {
  if (schema.enum) return "choice";
  const types = [schema.type ?? []].flat().filter((type) => type !== "null");
  const type = types.length === 1 ? types[0] : undefined;
  if (type === "string" && (value === undefined || typeof value === "string")) return "string";
  if ((type === "number" || type === "integer") && (value === undefined || typeof value === "number")) return type;
  if (type === "boolean" && (value === undefined || typeof value === "boolean")) return "boolean";
  if (!schema.type && !schema.anyOf && typeof value === "string") return "string";
  return "json";
}

function Input({ id, kind, schema, value, onChange, onError }: { id: string; kind: Kind; schema: Schema } & Pick<FieldProps, "value" | "onChange" | "onError">) {
  const draft = useSignal<string | null>(null);
  if (kind === "choice") {
    const options = schema.enum!;
    return (
      <select id={id} value={String(options.findIndex((option) => inline(option) === inline(value)))} onChange={(event) => onChange(options[Number(event.currentTarget.value)])}>
        {value === undefined && <option value="-1">–</option>}
        {options.map((option, index) => (
          <option value={String(index)}>{inline(option)}</option>
        ))}
      </select>
    );
  }
  if (kind === "boolean") {
    return (
      <select id={id} value={value === undefined ? "" : String(value)} onChange={(event) => onChange(event.currentTarget.value === "" ? undefined : event.currentTarget.value === "true")}>
        {value === undefined && <option value="">–</option>}
        <option value="true">true</option>
        <option value="false">false</option>
      </select>
    );
  }
  if (kind === "string") {
    const text = (value as string | undefined) ?? "";
    const write = (event: { currentTarget: { value: string } }) => onChange(event.currentTarget.value);
    return text.length > 60 || text.includes("\n") ? (
      <textarea id={id} rows={Math.min(10, text.split("\n").length + 1)} value={text} onInput={write} />
    ) : (
      <input id={id} type="text" value={text} spellcheck={false} autocomplete="off" onInput={write} />
    );
  }
  // numbers and structures: a draft is kept as text until it parses, so that nothing half-written is sent
  const shown = draft.value ?? (value === undefined ? "" : inline(value as Json));
  const write = (event: { currentTarget: { value: string } }) => {
    const written = event.currentTarget.value;
    draft.value = written;
    if (written.trim() === "") {
      onError(null);
      onChange(undefined);
      return;
    }
    try {
      const parsed = parseJson(written);
      if (kind !== "json" && typeof parsed !== "number") throw new Error(kind);
      onError(null);
      onChange(parsed);
    } catch (failure) {
      onError(`${id.slice("field-".length)}: ${t("form.bad_json", { error: (failure as Error).message })}`);
    }
  };
  return <input id={id} type="text" inputMode={kind === "json" ? "text" : "decimal"} class="mono" value={shown} spellcheck={false} autocomplete="off" onInput={write} />;
}
